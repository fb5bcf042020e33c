#!/usr/bin/python3 -B
"""What a person sees who types into bash on a terminal: terminal.py COMPLETION KEYS WANTED.

Starts bash on a pseudo-terminal, loads the completion, types KEYS, in which \\t is the tab key and \\n the enter key, and waits
until the screen has WANTED. The program `hawser` prints its arguments there, each in brackets. Exit status 1, with what was there
instead, after half a minute.
"""

import os
import pty
import select
import sys
import time


def main(completion, keys, wanted):
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PS1="ready> ", TERM="dumb")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    seen = b""
    give_up = time.monotonic() + 30

    def wait_for(text, start):
        nonlocal seen
        while text not in seen[start:]:
            if time.monotonic() > give_up or not select.select([terminal], [], [], 30)[0]:
                sys.exit(f"wanted {text!r}, and there is {seen[start:]!r}")
            try:
                seen += os.read(terminal, 4096)
            except OSError:
                sys.exit(f"bash has ended; wanted {text!r}, and there is {seen[start:]!r}")

    wait_for(b"ready> ", 0)
    start = len(seen)
    os.write(terminal, f"hawser() {{ printf '[%s]' \"$@\"; echo; }}; source '{completion}'; echo loa''ded\n".encode())
    wait_for(b"loaded", start)
    wait_for(b"ready> ", seen.index(b"loaded", start))
    start = len(seen)
    os.write(terminal, keys.replace("\\t", "\t").replace("\\n", "\n").encode())
    wait_for(wanted.encode(), start)
    os.close(terminal)
    os.waitpid(pid, 0)


main(*sys.argv[1:])
