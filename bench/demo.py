"""Makes one picture twice with build/bin/sd-cli, with ggml's kernels and with these, and compares time and result."""

import argparse

import sdcli


def main() -> None:
    _, settings = sdcli.parse_settings(__doc__, argparse.ArgumentParser())
    folder = sdcli.BUILD / "demo"
    program = sdcli.BUILD / "bin" / "sd-cli"
    upstream, assembly = (
        sdcli.run(program, form, settings, folder / f"{form}.png", {"SDGEN_KERNELS": form})
        for form in ("upstream", "assembly")
    )
    print(sdcli.table([upstream, assembly], [sdcli.compare(assembly, upstream)]))
    print("pictures:", upstream.picture, assembly.picture)


if __name__ == "__main__":
    main()
