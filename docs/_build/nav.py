"""A hook of mkdocs: the navigation names every page that may come; those that are not there are left out."""

from pathlib import Path


def on_config(config):
    """Drop entries without a file, and sections without an entry."""
    config.nav = _there(config.nav, Path(config.docs_dir))
    return config


def _there(entries, folder):
    kept = []
    for entry in entries:
        ((title, of_entry),) = entry.items()
        if isinstance(of_entry, list):
            of_entry = _there(of_entry, folder)
        elif not (folder / of_entry).is_file():
            continue
        if of_entry:
            kept.append({title: of_entry})
    return kept
