"""Sokoban in plain Python, written apart from the package, and its real levels."""

from pathlib import Path

import pytest

MOVES = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}


class ReferenceSokoban:
    """One level as sets of squares; whatever is not drawn is a wall."""

    def __init__(self, rows: list[str]):
        drawn = {
            (i, j): char for i, row in enumerate(rows) for j, char in enumerate(row)
        }
        self.size = (len(rows), len(rows[0]))
        self.floor = {at for at, char in drawn.items() if char != "#"}
        self.goals = {at for at, char in drawn.items() if char in ".*+"}
        self.boxes = {at for at, char in drawn.items() if char in "$*"}
        (self.player,) = (at for at, char in drawn.items() if char in "@+")

    @property
    def solved(self) -> bool:
        return self.boxes == self.goals

    def move(self, letter: str) -> tuple[float, bool, bool]:
        """Plays a move: gym-sokoban's reward, whether it moved, whether it pushed."""
        rows, columns = MOVES[letter.lower()]
        near = (self.player[0] + rows, self.player[1] + columns)
        beyond = (near[0] + rows, near[1] + columns)
        reward, pushed = -0.1, False
        if near in self.boxes and beyond in self.floor - self.boxes:
            n_placed = len(self.boxes & self.goals)
            self.boxes = (self.boxes - {near}) | {beyond}
            reward += len(self.boxes & self.goals) - n_placed
            pushed = True
        moved = near in self.floor - self.boxes
        if moved:
            self.player = near
        return reward + 10 * self.solved, moved, pushed

    def act(self, action: str) -> tuple[float, bool, bool]:
        """Plays an action by its name; what is called a move never pushes."""
        verb, _, direction = action.rpartition(" ")
        rows, columns = MOVES.get(direction[0], (0, 0))
        near = (self.player[0] + rows, self.player[1] + columns)
        if action == "no operation" or (verb == "move" and near in self.boxes):
            return -0.1 + 10 * self.solved, False, False
        return self.move(direction[0])

    def rows(self) -> list[str]:
        """The board as it now stands, in XSB characters."""
        height, width = self.size
        return [
            "".join(self._char((i, j)) for j in range(width)) for i in range(height)
        ]

    def _char(self, at: tuple[int, int]) -> str:
        if at not in self.floor:
            return "#"
        what = "$" if at in self.boxes else "@" if at == self.player else " "
        return {"$": "*", "@": "+", " ": "."}[what] if at in self.goals else what


@pytest.fixture(scope="session")
def reference() -> type[ReferenceSokoban]:
    return ReferenceSokoban


@pytest.fixture(scope="session")
def boxoban() -> Path:
    path = Path(__file__).parents[4] / "shared" / "data" / "boxoban"
    if not path.is_dir():
        pytest.skip("no Boxoban levels in ../shared/data/boxoban")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    """An empty directory where packs of levels go, not the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ALLOCSEARCH_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def small() -> dict:
    """Fields of a task that trains in moments. Not to be changed."""
    return {
        "levels": {
            "interior": [4, 4],
            "n_boxes": 1,
            "n_train": 40,
            "n_valid": 8,
            "n_test": 8,
        },
        "environment": {
            "keep_border": False,
            "step_limit": [3, 6],
            "evaluation_step_limit": 10,
        },
        "n_envs": 6,
        "unroll": 12,
        "n_minibatches": 2,
        "unrolls_per_chunk": 2,
    }
