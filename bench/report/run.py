"""Runs one program within a bounded time, and collects the lines of JSON that it prints."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field

MESSAGE_BYTES_MAX = 1000


@dataclass
class Run:
    """What a program printed, and why it failed: "" if it did not."""

    lines: list = field(default_factory=list)
    failure: str = ""
    timed_out: bool = False


def run(command, timeout_seconds):
    """Whatever the program does, it returns a Run: it may be absent, crash, hang, or print what is no JSON."""
    timed_out = False
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return Run(failure=f"does not start: {error.strerror or error}")
    try:
        output, errors = process.communicate(timeout=max(0.1, timeout_seconds))
        failure = exit_text(process.returncode)
    except subprocess.TimeoutExpired:
        output, errors = end(process)
        timed_out = True
        failure = f"killed after {timeout_seconds:.3g} s without an end"
    except BaseException:
        end(process)
        raise
    lines, wrong = parse(output.decode(errors="replace"))
    failure = "; ".join(text for text in (failure, wrong) if text)
    said = errors.decode(errors="replace").strip()
    if failure and said:
        failure += ": " + said[-MESSAGE_BYTES_MAX:]
    return Run(lines, failure, timed_out)


def end(process):
    """Kills the program and those that it started. Returns what it printed until then."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired:  # A process that left the group keeps the pipes open.
        return b"", b"what it printed is lost"


def exit_text(status):
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exit status {status}" if status else ""


def parse(text):
    """(lines that are JSON objects, what is wrong with the first other one)"""
    lines, wrong = [], ""
    for line in filter(str.strip, text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            lines.append(value)
        elif not wrong:
            wrong = f"printed a line that is no JSON object: {line[:200]!r}"
    return lines, wrong
