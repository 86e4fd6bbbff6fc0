"""What can be requested: templates, modes and overrides, and what each torch version makes of them."""
