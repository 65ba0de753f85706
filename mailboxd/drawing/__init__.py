"""Drawings of task trees and of time, as text: SVG, Mermaid, Graphviz. Data in, text out; nothing is read or asked.

`graph` says what is drawn, `looks` how a phase is shown (by word, shape and tone: never by colour alone), `layered`
where everything stands, `svg` and `gantt` draw, `text` writes it for other programs, `folding` keeps it small.
Every text of a drawing is foreign and is escaped here; links are only ever those that the caller made.
"""
