"""The commands: one file each, imported for `--help` and so light."""
