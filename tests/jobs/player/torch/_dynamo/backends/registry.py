"""The back-ends that a played plan may name."""


def list_backends(exclude_tags):
    return ["eager", "inductor"]
