# Self-documenting: `make` lists the targets.
.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# All packages of the modules in .ci/go.work. bench is apart: it compares with peers.
TEST ?= work
# What go test gets in .ci, whose go.work applies to no other command.
tested = $(patsubst ./%,../%,$(TEST))

.PHONY: setup
setup: ## Install or fetch PostgreSQL where it is missing; YES=1 answers the question
	@go run ./internal/setup

.PHONY: check
check: ## What CI runs: format, go.mod, linters, tests, race detector, newest PostgreSQL, vulnerabilities
	.ci/run

.PHONY: quick
quick: $(if $(TASKLEDGER_TEST_DATABASE_URL),,setup)
quick: ## Before a commit: vet, linters for what has changed, tests that take seconds; less than two minutes
	.ci/quick

.PHONY: test
# On a server of the caller's, a test that needs another one fetches its binaries itself. Go's own limit of 10 minutes
# for a package is too short for a busy laptop.
test: $(if $(TASKLEDGER_TEST_DATABASE_URL),,setup)
test: ## All tests, with servers of their own; TEST="-run 'TestX$$' ./ledger" for some
	cd .ci && go test -timeout 60m $(tested)

.PHONY: clients
clients: $(if $(TASKLEDGER_TEST_DATABASE_URL),,setup)
clients: ## The packages of Node and Python: built, installed from their files, tested with a real server
	cd internal/systemtest && GOWORK=$(CURDIR)/.ci/go.work go test . -run 'TestClient' -count 1 -v -timeout 30m

.PHONY: race
race: ## All tests under the race detector
	cd .ci && go test -race -parallel 2 -timeout 30m $(tested)

.PHONY: torture
torture: ## The whole product in processes under faults, checked at the end; TORTURE="-duration 5m -seed 7"
	go run ./internal/torture $(TORTURE)

.PHONY: feed-race
feed-race: ## The feed's race with many more transactions
	go test ./internal/feed -run TestFeedRace -v -timeout 30m -race-transactions 20000

.PHONY: many-kinds
many-kinds: ## One worker with 10,000 kinds: start, memory, idle CPU time, stop
	go test ./workers -run TestManyKinds -v -timeout 30m -kinds 10000

.PHONY: large-console
large-console: ## The time of each page of the console beside 5,000,000 tasks
	go test ./internal/console -run TestPagesOfALargeLedger -v -timeout 20m -console-tasks 5000000

.PHONY: large-archive
large-archive: ## The archive of 10,000,000 tasks: memory, rates, bytes a task, look-ups; needs 15 GB in TMPDIR
	go test ./internal/archiver -run TestLargeArchive -v -timeout 60m -large-archive 10000000

.PHONY: fresh-machine
fresh-machine: ## Set-up on a machine without PostgreSQL, by npm and by the distribution; as root
	go test ./internal/setup -run TestFreshMachine -v -timeout 30m -package

.PHONY: nats-away
nats-away: ## NATS away for a minute under a relay and workers of all guarantees
	cd internal/systemtest && go test . -run TestNATSAway -v -timeout 30m -nats-away 60s

.PHONY: conformance-stress
conformance-stress: ## Watermill's suite in its stress form, under the race detector
	cd watermill && go test -race -tags stress ./internal/conformance -timeout 60m

.PHONY: fuzz
fuzz: ## Every fuzz target for 30 seconds
	.ci/fuzz 30

.PHONY: lint
lint: ## golangci-lint with the committed configuration
	.ci/lint

.PHONY: golden
golden: schema api ## Rewrite all files that tests write: schema, rights, Go API, AsyncAPI
	go test ./internal/stream -run TestAsyncAPI -update

.PHONY: schema
schema: ## Rewrite migrations/schema.sql after a new migration
	go test ./migrations -run 'TestSchema|TestRightsMatrix' -update

.PHONY: api
api: ## Rewrite internal/rules/testdata/api.txt after a change of the exported Go API
	go test ./internal/rules -run TestGoAPI -update

.PHONY: pictures
pictures: ## Rewrite the pictures of the console in docs/console, with Chromium
	cd internal/systemtest && GOWORK=$(CURDIR)/.ci/go.work \
		go test ./browser -run TestPicturesForTheDocumentation -screenshots $(CURDIR)/docs/console

.PHONY: recording
recording: build ## Rewrite docs/console/demo.svg, a recording of the demo
	go run ./internal/recording docs/console/demo.svg bin/taskledger demo --once --orders 600

.PHONY: demo
demo: setup ## Play the shop, make trouble, prove the outcome
	go run ./cmd/taskledger demo --once $(DEMO)

.PHONY: bench
bench: ## Compare with the peers, more than an hour; BENCH="-quick" for less than six minutes
	cd bench && go run . $(BENCH)

.PHONY: build
build: ## Build bin/taskledger
	CGO_ENABLED=0 go build -trimpath -o bin/taskledger ./cmd/taskledger

.PHONY: release
release: ## Build dist/: archives for five platforms, SBOMs, the container image, Homebrew's formula, SHA256SUMS
	deploy/release
