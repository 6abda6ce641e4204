"""In the place of the library, in processes of products that do not have it (`support.PYTHON_PATH`)."""

raise ModuleNotFoundError("this process runs without rich, as in its image", name="rich")
