"""A folder that is put first in PYTHONPATH, so that Python runs its sitecustomize."""
