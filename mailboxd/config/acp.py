"""The part of the configuration that is about ACP: which harnesses there are, and what each may do unasked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mailboxd.config.fields import Arguments, Capabilities, Directory, HarnessName, Section, Variables, said


class HarnessSection(Section):
    """One program that speaks ACP (docs/acp.md)."""

    argv: Arguments = Field(description="The program and its arguments, like `[gemini, --acp]`.")
    backend: Literal["direct", "acpx"] = said("direct", "Who speaks ACP with it: mailboxd, or the program `acpx`.")
    capabilities: Capabilities = said(
        ("read",), "What it may do without asking: read, edit, execute, network. For the rest a person is asked."
    )
    environment: Variables = said((), "Names of further environment variables that it is given.")
    cwd: Directory = said("", "The directory that it works in, relative to the workspace, which is the default.")


class AcpSection(Section):
    """Harnesses that do work for this agent (needs the extra `acp`; docs/acp.md)."""

    acpx: Arguments = said(("acpx",), "The program for harnesses with `backend: acpx`.")
    harnesses: dict[HarnessName, HarnessSection] = said(
        {}, "The harnesses by their names, each with the keys below; a task names one (`runtime: acp`, `harness:`)."
    )
