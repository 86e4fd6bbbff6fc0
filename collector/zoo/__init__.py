"""The models: names, batch sizes, required packages, and builders that work offline.

`registry` finds models, `spec` defines what a model is, `catalog` lists the models suite by suite; none of these imports torch.
`builders` build models, and are imported only when a model is built.
"""
