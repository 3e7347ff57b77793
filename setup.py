"""The packages: what `find_packages` finds, and `rules/`, which is installed as `streamsafe.rules`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["streamsafe", "streamsafe.*"]), "streamsafe.rules"],
    package_dir={"streamsafe.rules": "rules"},
)
