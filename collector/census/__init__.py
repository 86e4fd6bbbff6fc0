"""The code that Inductor would generate for a device, without the device and without compiling a kernel."""
