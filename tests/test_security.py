"""Files are never executed, secrets never told, and terminals not acted upon."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import allocsearch
from allocsearch.analysis.formats import plain
from allocsearch.cli import exits
from allocsearch.cli.printing import show, show_json
from allocsearch.config import StudyConfig, load_config
from allocsearch.errors import ConfigError, redacted
from allocsearch.search.storage import describe, with_password, without_password
from allocsearch.study import Study, new_study, study_directory

PACKAGE = Path(allocsearch.__file__).parent
PLUGINS = PACKAGE.parent / "plugins"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *PLUGINS.rglob("*.py")])

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
UNSAFE_MODULES |= {"joblib", "code", "codeop", "pty"}
UNSAFE_CALLS = {
    *(
        "eval",
        "exec",
        "compile",
        "__import__",
        "os.system",
        "os.popen",
        "runpy.run_path",
    ),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load"),
    *("np.fromregex", "pd.read_pickle", "torch.load", "subprocess.getoutput"),
}
LOADERS = {"yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader"}


def dotted(node):
    """``"np.load"`` for the expression of that name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree):
    """What in a module could run what a file says, and where."""
    for node in ast.walk(tree):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        yield from (
            (node.lineno, name)
            for name in imported
            if name.partition(".")[0] in UNSAFE_MODULES
        )
        if isinstance(node, ast.Attribute) and dotted(node) in LOADERS:
            yield node.lineno, dotted(node)
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            given = {k.arg: getattr(k.value, "value", "?") for k in node.keywords}
            if name in UNSAFE_CALLS or given.get("shell", False) is not False:
                yield node.lineno, name
            if name.endswith(".load") and given.get("allow_pickle", False) is not False:
                yield node.lineno, name
            if name in ("np.load", "numpy.load") and "allow_pickle" not in given:
                yield node.lineno, name


def test_no_source_can_run_what_a_file_says():
    assert len(SOURCES) > 100
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {what}"
        for path in SOURCES
        for line, what in unsafe(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "yaml.load(text, yaml.SafeLoader)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=flag)",
        "os.system('true')",
        "class L(yaml.UnsafeLoader): pass",
    ],
)
def test_the_test_sees_what_it_looks_for(code):
    assert list(unsafe(ast.parse(code)))


SECRET = "postgresql://me:s3cret%21@host:5432/db?sslmode=require"
BARE = "postgresql://me@host:5432/db?sslmode=require"


def test_passwords_of_urls():
    assert without_password(SECRET) == BARE
    assert without_password(BARE) == BARE
    assert without_password("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
    assert without_password("postgresql:///db?password=x&host=h") == (
        "postgresql:///db?host=h"
    )
    assert "s3cret" not in describe(SECRET)
    assert "=x" not in describe("postgresql:///db?password=x&host=h")
    assert with_password(BARE, SECRET) == SECRET
    assert with_password(BARE, None) == BARE
    other = SECRET.replace("host", "other")
    assert with_password(BARE, other) == BARE


@pytest.mark.parametrize(
    "text",
    [
        "no postgresql://me:s3cret@host/db here",
        "mysql+pymysql://me:s3cret@host/db",
        "host=h password=s3cret dbname=x",
        "postgresql://h/db?user=a&password=s3cret&x=1",
        "two a://b:s3cret@c and d://:s3cret@f/",
    ],
)
def test_redacted_text_has_no_password(text):
    assert "s3cret" not in redacted(text)
    assert "***" in redacted(text)
    assert exits.sentence_of(RuntimeError(text)).count("s3cret") == 0


def test_other_text_stays_as_it_is():
    for text in ("a: b@c", "http://host:80/x@y", "memory://a/b", "s3://bucket/x"):
        assert redacted(text) == text


def test_a_study_keeps_no_password(tmp_path, monkeypatch):
    """Neither do the messages about it, nor `show-config`."""
    from allocsearch import study as module

    config = StudyConfig(
        name="s", output={"directory": str(tmp_path), "storage": SECRET}
    )
    made = module._without_secrets(config.given())
    assert made["output"]["storage"] == BARE
    assert config.output.storage == SECRET
    monkeypatch.delenv(module.STORAGE_VARIABLE, raising=False)
    later = new_study(made)
    assert later.storage == BARE
    monkeypatch.setenv(module.STORAGE_VARIABLE, SECRET)
    assert later.storage == SECRET
    monkeypatch.setenv(module.STORAGE_VARIABLE, "postgresql://me:x@other/db")
    assert later.storage == BARE
    plain_study = Study(study_directory(config), StudyConfig(name="s"))
    assert plain_study.storage.startswith("sqlite:///")


@pytest.mark.parametrize(
    "setting",
    [
        f"output.storag={SECRET}",
        f"output.storage=[{SECRET}",
        f"{SECRET}",
        f"output.checkpoint_quota={SECRET}",
        "output.checkpoints=ftp://me:s3cret@host/x",
    ],
)
def test_a_refused_setting_is_told_without_its_password(setting):
    with pytest.raises(ConfigError) as caught:
        load_config(settings=[setting])
    assert "s3cret" not in str(caught.value)


HOSTILE = "[bold]a[/] \x1b]0;title\x07\x1b[31mred\x9b1m\u202ereversed \udcff\x7f"


def test_nothing_printed_acts_on_a_terminal(capsys):
    show(HOSTILE, "two\nlines")
    show_json({HOSTILE: [HOSTILE]})
    with pytest.raises(SystemExit):
        exits.leave(HOSTILE, 2)
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert not set(text) & set("\x1b\x07\x9b\u202e\x7f\udcff")
        text.encode()
    assert printed.out.startswith("[bold]a[/] ]0;title")
    assert "two\nlines" in printed.out
    body = printed.out[printed.out.index("{") :]
    assert json.loads(body) == {HOSTILE: [HOSTILE]}
    assert plain(HOSTILE) == "[bold]a[/] ]0;title[31mred1mreversed "


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names are bytes")
def test_a_file_name_that_is_no_text(tmp_path):
    """As a path that a message names."""
    name = b"\xff\x1b[31m.yaml"
    command = [sys.executable, "-m", "allocsearch", "run", name]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_no_field_of_a_file_names_what_is_imported():
    """Modules are imported by names that stand in the source, or by the registry."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            if dotted(node.func).endswith("import_module"):
                name = node.args[0]
                fixed = (
                    isinstance(name, ast.Subscript) and dotted(name.value) == "_HOME"
                )
                assert fixed or isinstance(name, ast.Constant), (path, node.lineno)
            if dotted(node.func).endswith("EntryPoint"):
                assert path.name == "registry.py"
