# syntax=docker/dockerfile:1
# The command `peregrine` with its built-in model, on glibc and little else.
#
#   docker build -t peregrine .
#   echo "Good morning!" | docker run -i --rm peregrine translate
#   docker run -i --rm -v "$PWD/model:/data:ro" peregrine translate -m /data < in > out
#   docker run --rm -p 8989:8989 peregrine serve --host 0.0.0.0
#   docker run -i --rm --gpus all peregrine translate --device cuda < in > out
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked -p peregrine-cli && cp target/release/peregrine /peregrine

# glibc and not musl: the driver's libcuda.so.1, which the container runtime mounts, is opened with dlopen.
# The tag `nonroot` runs as user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /peregrine /usr/local/bin/peregrine
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/peregrine/
# What of the driver the container runtime mounts, where a GPU is given.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /data
ENTRYPOINT ["/usr/local/bin/peregrine"]
CMD ["--help"]
