"""The builders of the models. These modules import torch and the model libraries, so they are imported on demand only."""
