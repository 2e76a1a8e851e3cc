"""A file to read, by its text or its bytes."""


def put(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
