"""Native code that is built at its first use, the installed torch it is built for, and what follows an import."""
