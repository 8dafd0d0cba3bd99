"""Seeds that are the same in every process."""

import hashlib
import json


def derive_seed(*parts: int | str) -> int:
    """A seed in ``[0, 2**32)`` that depends on every part and on their order.

    Python's own `hash` of a string changes from process to process, so the parts go
    through SHA-256.
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big")
