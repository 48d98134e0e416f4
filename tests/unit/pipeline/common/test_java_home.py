"""Java is found by itself, or the message says what to install."""

import pickle

import pytest

from pipeline.common.java_home import NoJava, find_java_home


def java(folder, version):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nLIBC="gnu"\n')
    return folder


def test_java_home_has_precedence_over_the_path_and_the_path_over_default_directories(tmp_path):
    given, on_path = java(tmp_path / "given", "17.0.15"), java(tmp_path / "path", "21.0.2")
    usual = java(tmp_path / "jvm" / "a", "17")
    environment = {"JAVA_HOME": str(given), "PATH": str(on_path / "bin")}

    assert given == find_java_home(environment, (str(tmp_path / "jvm"),))
    assert on_path == find_java_home({"PATH": environment["PATH"]}, (str(tmp_path / "jvm"),))
    assert usual == find_java_home({}, (str(tmp_path / "jvm"),))


def test_the_java_of_the_path_is_found_through_its_links(tmp_path):
    home = java(tmp_path / "jvm" / "java-17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    assert home == find_java_home({"PATH": str(tmp_path / "bin")}, ())


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2", "25.0.1"])
def test_java_of_another_version_is_skipped(tmp_path, version):
    java(tmp_path / "jvm" / "a", version)
    right = java(tmp_path / "jvm" / "b", "21.0.8")

    assert right == find_java_home({"JAVA_HOME": str(tmp_path / "jvm" / "a")}, (str(tmp_path / "jvm"),))


def test_without_a_usable_java_the_error_names_what_was_found_and_what_to_install(tmp_path):
    other = java(tmp_path / "jvm" / "a", "25.0.1")
    (tmp_path / "jvm" / "empty").mkdir()

    with pytest.raises(NoJava, match=r"apt-get install openjdk-17-jre-headless") as caught:
        find_java_home({}, (str(tmp_path / "jvm"),))

    assert {other: 25} == caught.value.seen
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))
    with pytest.raises(NoJava, match="no Java"):
        find_java_home({"PATH": ""}, ())
