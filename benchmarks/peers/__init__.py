"""Hotset beside the loaders that people use instead, from one slow store that counts what each asks for."""
