"""Writing beside training, at a URL, and under kill -9."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from allocsearch import checkpoint
from allocsearch.checkpoint import format as on_disk
from allocsearch.checkpoint.stores import LocalStore
from allocsearch.errors import CheckpointError, StudyError


def test_training_goes_on_while_a_step_is_written(tmp_path, monkeypatch):
    """A donated array is changed in place meanwhile; what is written is the old one."""
    go_on = threading.Event()
    write = on_disk._write_arrays

    def slow(*args, **kwargs):
        assert go_on.wait(30)
        write(*args, **kwargs)

    monkeypatch.setattr(on_disk, "_write_arrays", slow)
    update = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    state = update(jnp.arange(1000, dtype=jnp.float32))
    metadata = {"curve": [1]}
    with checkpoint.Writer(tmp_path / "c") as writer:
        writer.save({"x": state}, metadata)
        metadata["curve"].append(2)
        for _ in range(3):
            state = update(state)
        assert not checkpoint.exists(tmp_path / "c")
        go_on.set()
    found = checkpoint.latest(tmp_path / "c")
    expected = 2 * np.arange(1000, dtype=np.float32) + 1
    assert np.array_equal(found.restore({"x": jnp.zeros(1000)})["x"], expected)
    assert found.metadata == {"curve": [1]}


def test_a_cpus_arrays_are_not_copied():
    x = jnp.arange(2**16, dtype=jnp.float32)
    (leaf,) = on_disk.snapshot([x], {}).leaves.values()
    assert leaf.__array_interface__["data"][0] == x.unsafe_buffer_pointer()


def test_what_went_wrong_is_said_at_the_next_call(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    writer = checkpoint.Writer(tmp_path / "c")
    monkeypatch.setattr(on_disk, "_write_arrays", full)
    writer.save([jnp.zeros(3)], {})
    with pytest.raises(StudyError, match="No space left"):
        writer.save([jnp.zeros(3)], {})
    writer.save([jnp.zeros(3)], {})
    with pytest.raises(StudyError, match="No space left"):
        writer.wait()
    writer.wait()  # said once


def test_an_error_of_training_is_not_hidden(tmp_path):
    def train():
        with checkpoint.Writer(tmp_path / "c") as writer:
            writer.save([jnp.zeros(3)], {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert checkpoint.exists(tmp_path / "c")


def test_two_writers_of_one_checkpoint_leave_whole_steps(tmp_path):
    """As when a worker that was thought dead writes once more."""

    def save(seed):
        for i in range(15):
            checkpoint.save(tmp_path / "c", [jnp.full(50, seed * 100 + i)], {})

    threads = [threading.Thread(target=save, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (values,) = checkpoint.load(tmp_path / "c", [jnp.zeros(50, jnp.int32)])
    assert len({*values.tolist()}) == 1
    assert values[0] % 100 == 14


SAVER = """
import sys, jax.numpy as jnp
from allocsearch import checkpoint
writer = checkpoint.Writer(sys.argv[1])
for i in range(10**9):
    writer.save({"x": jnp.full(200_000, i), "n": jnp.asarray(i)}, {"n": i})
    print(i, flush=True)
"""


def test_kill_9_in_the_middle_of_saves(tmp_path):
    draw = random.Random(0)
    template = {"x": jnp.zeros(200_000, jnp.int32), "n": jnp.asarray(0)}
    for _ in range(4):
        command = [sys.executable, "-c", SAVER, str(tmp_path / "c")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(3):  # the third begins once two are written
                said = int(process.stdout.readline())
            time.sleep(draw.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        notes = []
        found = checkpoint.latest(tmp_path / "c", note=notes.append)
        values = found.restore(template)
        n = found.metadata["n"]
        assert n >= said - 1
        assert not notes
        assert int(values["n"]) == n
        assert np.array_equal(values["x"], np.full(200_000, n))
    assert [*(tmp_path / "c").glob("*.new")]  # some were indeed cut off


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    pytest.importorskip("fsspec")
    place = f"{request.param}://{tmp_path}/c"
    yield place
    checkpoint.remove(place)


def test_at_a_url(url):
    assert not checkpoint.exists(url)
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        checkpoint.latest(url)
    for i in range(3):
        checkpoint.save(url, [jnp.arange(3) + i], {"i": i})
    assert checkpoint.exists(url)
    assert len(checkpoint.children(url)) == 2
    assert checkpoint.nbytes(url) > 24
    assert checkpoint.latest(url).metadata == {"i": 2}
    assert checkpoint.load(url, [jnp.zeros(3, jnp.int32)])[0].tolist() == [2, 3, 4]
    checkpoint.set_aside(url)
    assert not checkpoint.exists(url)
    assert checkpoint.exists(f"{url}.damaged")
    checkpoint.remove(f"{url}.damaged")


def test_damage_and_unfinished_uploads_at_a_url(url):
    import fsspec

    for i in (1, 2):
        checkpoint.save(url, [jnp.arange(3) + i], {"i": i})
    fs, root = fsspec.url_to_fs(url)
    step = max(checkpoint.children(url))
    fs.rm(f"{root}/{step}/manifest.json")  # killed before the last file
    notes = []
    assert checkpoint.latest(url, note=notes.append).metadata == {"i": 1}
    assert "a file is missing" in notes[0]
    checkpoint.save(url, [jnp.arange(3)], {"i": 3})
    assert checkpoint.latest(url).metadata == {"i": 3}


def test_urls_that_lead_nowhere():
    with pytest.raises(StudyError, match=r"cannot be reached.*nonsense"):
        checkpoint.exists("nonsense://bucket/x")
    with pytest.raises(StudyError) as caught:
        checkpoint.exists("nonsense://me:secret@bucket/x")
    assert "secret" not in str(caught.value)
    assert "me:***@bucket" in str(caught.value)


def test_without_a_folder_to_write_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot be written: Not a directory"):
        checkpoint.save(tmp_path / "file" / "c", [jnp.zeros(3)], {})
    assert LocalStore(tmp_path / "file" / "c").free_bytes()


def test_the_page_about_checkpoints_runs(capsys):
    pytest.importorskip("fsspec")
    page = Path(__file__).resolve().parents[1] / "docs" / "checkpoints.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(compile(block, page.name, "exec"), {"__name__": "a_page"})
    checkpoint.remove("memory://an-example")
    assert "{'step': 2}" in capsys.readouterr().out
