"""Native code that is built at its first use, and the installed torch it is built for."""
