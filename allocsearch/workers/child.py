"""A worker process: reads jobs from its input, trains them, writes what happens.

Lines of JSON either way. Nothing is unpickled, and nothing that is read is run. It ends
when its input does: so it never outlives its driver, however that ended.
"""

import json
import os
import signal
import sys
import threading
from typing import IO, Any

from allocsearch.errors import AllocsearchError
from allocsearch.workers.serving import Inbox, Server


def main() -> None:
    """Serve until the input ends."""
    # The driver says when to stop; a terminal or a scheduler signals us as well.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # What a task prints must not get between the messages.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if description := sys.stdin.readline():
        _serve(json.loads(description), sys.stdin, out)


def _serve(description: dict[str, Any], lines: IO[str], out: IO[str]) -> None:
    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    inbox = Inbox(lines, description["valid_seconds"])
    threading.Thread(target=inbox.read, daemon=True).start()
    try:
        server = Server(description)
    except AllocsearchError as error:
        send({"event": "error", "text": str(error)})
        return
    send({"event": "ready"})
    while True:
        job, control = inbox.jobs.get()
        server.train(job, control, send)


if __name__ == "__main__":
    main()
