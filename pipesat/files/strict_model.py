"""The base of what files are read into."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """No unknown keys, and no value of another type: ``"3"``, ``3.0`` and ``true`` are not 3."""

    model_config = ConfigDict(strict=True, extra="forbid")
