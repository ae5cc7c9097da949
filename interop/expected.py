"""Cases that fail, and why that is the peer's doing. A case here that passes is reported."""

EXPECTED = {}
