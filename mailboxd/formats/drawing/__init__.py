"""Drawings of task trees and timelines as SVG. Pure functions.

All texts in a drawing are untrusted and escaped here; links are only those that the caller passes.
"""
