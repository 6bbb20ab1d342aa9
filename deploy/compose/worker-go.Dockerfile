FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -o /quickstart ./examples/quickstart

FROM scratch
COPY --from=build /quickstart /quickstart
USER 65532:65532
ENTRYPOINT ["/quickstart"]
