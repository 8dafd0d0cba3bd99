"""Documents streamed from the Hugging Face hub by `datasets`, through broken networks.

A dataset is read in its own order, unshuffled, by one reader: the only case in which a
state of `datasets` leads back to the very next document. The names of all its files,
which on the hub include the commit, are part of `describe`, because a state of other
files would be accepted and be wrong.
"""

import copy
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from allocsearch.errors import AllocsearchError, DataError
from allocsearch.tasks.fineweb.documents import (
    Piece,
    State,
    ignore,
    missing_column,
)
from allocsearch.tasks.fineweb.scans import scan_file
from allocsearch.tasks.fineweb.tokenization import needs

FINEWEB, FINEWEB_CONFIG = "HuggingFaceFW/fineweb", "sample-10BT"

_SPLIT = "train"
_MOST_FAILURES = 10
_LONGEST_WAIT = 60.0
_NETWORK_PACKAGES = {"aiohttp", "httpcore", "httpx", "requests", "urllib"}
"""Less the digit that some end with."""
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FINAL_STATUS = (401, 403, 404, 410)


class StreamedDataset:
    """The train split of a dataset of the hub, or of a local folder.

    Attributes:
        revision: the commit that is read, where the hub tells one.
    """

    def __init__(
        self,
        dataset: str = FINEWEB,
        config: str | None = None,
        *,
        column: str = "text",
        revision: str | None = None,
        notify: Callable[[str], None] = ignore,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """Find the dataset's files.

        Args:
            dataset: its name on the hub, or a folder.
            config: one of its configs, its default one if left out.
            column: where the text is.
            revision: a commit of it, the newest if left out.
            notify: is told of each failure of the network.
            sleep: waits for some seconds.

        Raises:
            ConfigError: `datasets` is missing.
            DataError: there is no such dataset or config, or no network.
        """
        try:
            import datasets
        except ImportError as error:
            raise needs("datasets", error) from error
        self._asked = {"dataset": dataset, "config": config, "column": column}
        self.column = column
        self.notify, self.sleep = notify, sleep
        try:
            self._builder = datasets.load_dataset_builder(
                dataset, config, revision=revision
            )
            found = (self._builder.config.data_files or {}).get(_SPLIT)
        except Exception as error:  # of many kinds, each with a sentence
            raise DataError(
                f"dataset {dataset!r}, config {config!r}, cannot be opened: "
                f"{_first_line(error)}"
            ) from error
        self._files = list(found or ())
        if not self._files:
            raise DataError(f"dataset {dataset!r} has no split {_SPLIT!r}")
        commit = re.search(r"@([0-9a-f]{40})/", self._files[0])
        self.revision = commit[1] if commit else None

    def describe(self) -> dict[str, Any]:
        """See `Source.describe`."""
        listed = hashlib.sha256("\n".join(map(_identity, self._files)).encode())
        return {
            **self._asked,
            "split": _SPLIT,
            "revision": self.revision,
            "n_files": len(self._files),
            "files_sha256": listed.hexdigest(),
        }

    def stream(self) -> Any:
        """A fresh `datasets.IterableDataset`."""
        stream: Any = self._builder.as_streaming_dataset(split=_SPLIT)
        if stream.column_names and self.column in stream.column_names:
            return stream.select_columns(self.column)
        return stream

    def open(self, state: State | None = None) -> "PersistentReader":
        """See `Source.open`."""
        return PersistentReader(
            self.stream,
            state,
            column=self.column,
            notify=self.notify,
            sleep=self.sleep,
        )


class PersistentReader:
    """Reads a stream of `datasets`; where the network fails, waits and reads on.

    Nothing is lost or read twice: a new stream starts from the state after the last
    document that arrived.
    """

    def __init__(
        self,
        stream: Callable[[], Any],
        state: State | None,
        *,
        column: str,
        notify: Callable[[str], None],
        sleep: Callable[[float], None],
    ):
        """Read from the beginning, or on from a state.

        Args:
            stream: makes a fresh `datasets.IterableDataset`.
            state: from `state`.
            column: where the text is.
            notify: is told of each failure.
            sleep: waits for some seconds.
        """
        self._stream, self._state, self._column = stream, state or {}, column
        self._notify, self._sleep = notify, sleep
        self._examples: Iterator[dict[str, Any]] | None = None
        self._current: Any = None

    def __iter__(self) -> Iterator[Piece]:
        """Itself."""
        return self

    def __next__(self) -> Piece:
        """The next document.

        Raises:
            DataError: the network failed too often in a row, or there is no text.
        """
        n_failures = 0
        while True:
            try:
                example = self._read()
                break
            except (StopIteration, AllocsearchError):
                raise
            except Exception as error:  # what libraries of the network raise
                if not of_network(error):
                    raise DataError(
                        f"the dataset cannot be read: {_first_line(error)}"
                    ) from error
                n_failures += 1
                self._wait(n_failures, error)
        return Piece(self._text(example))

    def state(self) -> State:
        """See `Reader.state`."""
        return copy.deepcopy(self._state)

    def _read(self) -> dict[str, Any]:
        if self._examples is None:
            self._current = self._stream()
            if self._state:
                self._current.load_state_dict(self.state())
            self._examples = iter(self._current)
        example = next(self._examples)
        self._state = self._current.state_dict()
        return example

    def _wait(self, n_failures: int, error: Exception) -> None:
        self._examples = None
        if n_failures > _MOST_FAILURES:
            raise DataError(
                f"the network failed {n_failures} times in a row, at last with "
                f"{_first_line(error)}: finished shards are kept, so run the same "
                "command again to read on"
            ) from error
        seconds = min(2.0 ** (n_failures - 1), _LONGEST_WAIT)
        self._notify(f"network: {_first_line(error)}; again in {seconds:.0f} s")
        self._sleep(seconds)

    def _text(self, example: dict[str, Any]) -> str:
        if self._column not in example:
            raise missing_column("the dataset", self._column, list(example))
        text = example[self._column]
        if not isinstance(text, str):
            raise DataError(
                f"the dataset's column {self._column!r} must be text, received "
                f"{'nothing' if text is None else type(text).__name__}"
            )
        return text


def of_network(error: BaseException) -> bool:
    """Whether an error is one that may pass when tried again."""
    response = getattr(error, "response", None)
    if getattr(response, "status_code", None) in _FINAL_STATUS:
        return False
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if {module.rstrip("0123456789") for module in modules} & _NETWORK_PACKAGES:
        return True
    return isinstance(error, OSError) and not isinstance(error, _FINAL)


def _identity(file: str) -> str:
    path = Path(file)
    return f"{path.name} {scan_file(path).sha256}" if path.is_file() else file


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
