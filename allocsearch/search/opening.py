"""Studies in a database: which there are, how one begins, what it was begun as."""

import optuna
from optuna.storages import RDBStorage
from optuna.study import StudyDirection

from allocsearch.errors import StudyError
from allocsearch.search.identity import ATTRIBUTE, Identity
from allocsearch.search.storage import describe


def names(rdb: RDBStorage) -> list[str]:
    """The names of all studies."""
    return sorted(study.study_name for study in rdb.get_all_studies())


def missing(storage: str, name: str, rdb: RDBStorage) -> StudyError:
    """The error for a study that is not there."""
    known = ", ".join(names(rdb)) or "none"
    return StudyError(f"{describe(storage)} has no study {name!r}; it has: {known}.")


def begin(rdb: RDBStorage, name: str, identity: Identity) -> None:
    """Make the study `name` and store what it is."""
    optuna.create_study(
        study_name=name,
        storage=rdb,
        directions=[StudyDirection[d.upper()] for d in identity.directions],
        load_if_exists=True,
    ).set_user_attr(ATTRIBUTE, identity.to_json())


def identity_of(rdb: RDBStorage, name: str, wanted: Identity | None) -> Identity:
    """The stored identity of a study.

    A study that was cut off before it got one, and so has no trials, becomes `wanted`.

    Raises:
        StudyError: there is no identity that can be read.
    """
    study_id = rdb.get_study_id_from_name(name)
    stored = rdb.get_study_user_attrs(study_id).get(ATTRIBUTE)
    if stored is None and wanted is not None and not rdb.get_n_trials(study_id):
        directions = [d.name.lower() for d in rdb.get_study_directions(study_id)]
        if directions == list(wanted.directions):
            rdb.set_study_user_attr(study_id, ATTRIBUTE, wanted.to_json())
            return wanted
    return Identity.from_json(stored, name)
