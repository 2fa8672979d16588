"""One process for the session, from which commands are forked."""

from collections.abc import Iterator

import pytest

from forked import Starter


@pytest.fixture(scope="session")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    starter = Starter(tmp_path_factory.mktemp("pipes"))
    yield starter
    starter.stop()
