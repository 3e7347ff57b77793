"""What runs between functions: methods of a class, generators, hooks, threads, captures and replays."""
