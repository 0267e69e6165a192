"""What a training waits for: any loader and any step, measured, and judged by the native part."""
