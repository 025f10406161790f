"""The integers of the formats, for pydantic."""

from typing import Annotated

from pydantic import Field

MOST = 10**12
MOST_FACTOR = 10**6

Amount = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
FactorOf = Annotated[
    list[Annotated[int, Field(ge=1, le=MOST_FACTOR)]], Field(min_length=2, max_length=2)
]
"""[num, den]."""
