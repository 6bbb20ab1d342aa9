module github.com/taskledger/taskledger

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0 // the driver of PostgreSQL, and the transactions that callers pass
	github.com/jedib0t/go-pretty/v6 v6.9.2 // tables of the command line, and the demo's progress bar
	github.com/klauspost/compress v1.20.4 // zstd: the segments of an archive
	github.com/minio/minio-go/v7 v7.4.1 // archives in object stores: linked by the command alone
	github.com/nats-io/nats-server/v2 v2.15.3 // the broker that serve, demo and tests run in process
	github.com/nats-io/nats.go v1.55.0 // the client of JetStream
	github.com/nats-io/nkeys v0.4.17 // keys of users, which the command nats-config makes
	github.com/netresearch/go-cron v0.15.0 // cron expressions of schedules, with time zones
	github.com/pressly/goose/v3 v3.30.1 // runs the migrations and records their versions
	github.com/prometheus/client_golang v1.25.0 // metrics: the official client
	github.com/spf13/cobra v1.10.2 // commands, help and shell completion
	github.com/spf13/pflag v1.1.0 // types in cobra's interface, for flags from the environment and errors of values
	github.com/wneessen/go-mail v0.8.1 // mails of alarms: encoding, TLS and login
	go.yaml.in/yaml/v3 v3.0.6 // files of schedules and alarms
	golang.org/x/mod v0.43.0 // sumdb/tlog: the Merkle tree of the seal, by RFC 6962
	golang.org/x/term v0.48.0 // size and keys of the terminal, for top
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.9.0-default-no-op // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/klauspost/crc32 v1.3.0 // indirect
	github.com/mattn/go-runewidth v0.0.24 // indirect
	github.com/mfridman/interpolate v0.2.0 // indirect
	github.com/minio/crc64nvme v1.1.1 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/minio/md5-simd v1.1.2 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/nats-io/jwt/v2 v2.8.3 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.23.0 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/sethvargo/go-retry v0.5.0 // indirect
	github.com/tinylib/msgp v1.6.4 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/ini.v1 v1.67.3 // indirect
)
