"""As much of torch as planning a played night needs: to import the real one takes longer than to play it."""
