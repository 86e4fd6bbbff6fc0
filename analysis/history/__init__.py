"""Many runs become series, change points and alerts."""
