"""Builders of suite `modern`: kinds of models that PyTorch's lists of models lack, in plain torch where nothing else is said."""
