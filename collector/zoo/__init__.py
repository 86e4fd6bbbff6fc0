"""The models: name, batch sizes, what each needs, how to build it offline.

`registry` finds them, `spec` says what one is, `catalog` lists them suite by suite; none of these imports torch.
`builders` make them, and are imported when a model is built.
"""
