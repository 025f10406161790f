"""The integers of the formats, for pydantic."""

from typing import Annotated

from pydantic import Field

MOST = 10**12

Amount = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
