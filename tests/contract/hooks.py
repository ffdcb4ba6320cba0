# SPDX-License-Identifier: Apache-2.0
"""What schemathesis does not know by itself: NDJSON, and lists of entity tags (RFC 9110 8.8.3)."""

import json

import schemathesis
from hypothesis import strategies as st


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context, value):
    items = value if isinstance(value, list) else [value]
    return "".join(json.dumps(item) + "\n" for item in items).encode()


tags = st.lists(st.from_regex(r'(W/)?"[!#-~]*"', fullmatch=True), min_size=1, max_size=4)
# revisions are numbers from 1: some of these are a record's own
own = st.integers(1, 200).map('"{}"'.format)
schemathesis.openapi.format("entity-tags", st.just("*") | own | tags.map(", ".join))
