# Run `make help` for the targets. Needs Go, git, a C compiler (for -race) and bash.
#
# The project is a workspace of several modules (go.work). `./...` stops at the
# border of a module, so every target works on the patterns of all of them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := check

GOLANGCI_VERSION  := v2.15.0
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
GREMLINS_VERSION  := v0.6.0

# Debian packages that tests need, and the tests that are left out without them.
DEBIAN_PACKAGES := chromium postgresql prometheus rabbitmq-server redis-server redis-tools
DEBIAN_TESTS    := consume/amqpconsume dashboard/browsertest fallback/amqpdefer fallback/asynqdefer internal/pgserver otelx/grafana ratelimit/redislimit ratelimit/rls redisx sqlgate

# Modules that are never released, as directories.
UNRELEASED := bench dashboard/browsertest e2e examples/frameworks httpx/clienttest otelx/grafana tools

FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 1
PKG      ?= ./breaker
API      ?= api

# Recursive on purpose: targets that do not need them should not ask the go command.
MODULE_DIRS = $(shell go list -m -f '{{.Dir}}')
RELEASED    = $(filter-out $(addprefix $(CURDIR)/,$(UNRELEASED)),$(MODULE_DIRS))
ALL         = $(addsuffix /...,$(MODULE_DIRS))
BENCH_DIR   = $(CURDIR)/bench
INCIDENTS   = $(CURDIR)/examples/incidents
# Peers under measurement are not ours to test for races, and the replays of incidents,
# whose policies are tested elsewhere, would take a minute under the detector.
RACED       = $(addsuffix /...,$(filter-out $(BENCH_DIR) $(INCIDENTS),$(MODULE_DIRS)))
# The demo and the rules for Prometheus play against real time: their tests come after all
# others, alone, and those that are about time run without the race detector.
TIMED       = $(CURDIR)/cmd/breakwater/... $(CURDIR)/otelx/grafana/...
# Those that come after all others: these, and what drives a browser.
ALONE       = $(TIMED) $(CURDIR)/dashboard/browsertest/...
# The directories, as patterns, of test files in which a line matches $(1).
dirs_with   = { grep -rlE --include='*_test.go' --exclude-dir=.tmp --exclude-dir=bench '$(1)' . || true; } | xargs -r -n1 dirname | sort -u

# Built tools live outside the checkout: golangci-lint takes minutes on a small
# machine, and a fresh clone should find what an earlier one has built.
TOOL_DIR  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/breakwater/bin
GOVERSION  = $(shell go env GOVERSION)
GOLANGCI   = $(TOOL_DIR)/golangci-lint-$(GOLANGCI_VERSION)-$(GOVERSION)
BENCHSTAT  = $(TOOL_DIR)/benchstat-$(BENCHSTAT_VERSION)-$(GOVERSION)
GREMLINS   = $(TOOL_DIR)/gremlins-$(GREMLINS_VERSION)-$(GOVERSION)

# install(binary, package@version), in one step from the view of others. Without
# cgo and with a lazier garbage collector the compiler is some 15 % faster, while
# the default flags let it share the standard library with our own builds.
define install
	if [ ! -x '$(1)' ]; then \
	  echo 'building $(notdir $(1)) (once for all checkouts)'; \
	  mkdir -p '$(TOOL_DIR)'; \
	  tmp=$$(mktemp -d -p '$(TOOL_DIR)'); trap 'rm -rf "$$tmp"' EXIT; \
	  GOWORK=off GOBIN="$$tmp" CGO_ENABLED=0 GOGC=400 go install -ldflags='-s -w' '$(2)'; \
	  mv "$$tmp"/* '$(1)'; \
	fi
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##### Everyday

.PHONY: check
check: fmt-diff fix-diff tidy-diff lint ## Quick check before a commit (default): format, go fix, tidy, lint, short tests
	go test -race -short $(RACED)
	go test -short $(INCIDENTS)/...

.PHONY: test
test: deps ## Everything that must hold: vet, lint, docs, tests with -race, allocation tests, bench builds
	@# -k: a fault that lint finds should not hide one that a test finds.
	@$(MAKE) --no-print-directory -k vet lint docs unit dashboard-built

.PHONY: vet
vet: ## Build and vet every module
	go build $(ALL)
	go vet $(ALL)

.PHONY: lint
lint: ## Run golangci-lint on every module
	@$(call install,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION))
	GOGC=400 $(GOLANGCI) run $(ALL)

.PHONY: docs
docs: ## Check the docs: Go blocks, embedded code, links, metrics, the table of cases
	@go run ./tools/snippets

.PHONY: docs-write
docs-write: ## Write embedded code and the table of cases into the docs, then check them
	@go run ./tools/snippets -w

.PHONY: dashboards
dashboards: ## Write the Grafana dashboards anew from their code
	@go -C otelx/grafana run ./cmd/dashboards dashboards

.PHONY: unit
unit: # The test runs of `make test`, added up.
	@mkdir -p .tmp && rm -f .tmp/test-summary && go build -o .tmp/testsum ./tools/testsum
	@echo 'go test -race, allocation tests without it, tests of bench and the incidents'
	@{ rc=0; \
	  go test -json -count=1 -race $(filter-out $(ALONE),$(RACED)) || rc=1; \
	  go test -json -count=1 -race -p 1 $(ALONE) || rc=1; \
	  go test -json -count=1 -p 1 $(TIMED) || rc=1; \
	  alloc=$$($(call dirs_with,^func TestAlloc)); \
	  [ -z "$$alloc" ] || go test -json -count=1 -run '^TestAlloc' $$alloc || rc=1; \
	  go test -json -count=1 $(BENCH_DIR)/... $(INCIDENTS)/... || rc=1; \
	  exit $$rc; \
	} | .tmp/testsum -o .tmp/test-summary -modules "$$(go list -m)"

.PHONY: schema
schema: ## Write the JSON Schemas of breakwater.yaml from the Go types and their comments
	go -C config test -count=1 -run '^TestSchemaIsThatOfTheTypes$$' . -update
	go -C config/redisconfig test -count=1 -run '^TestDescriptionsAreTheComments$$' . -update
	go -C cmd/breakwater test -count=1 -run '^TestSchema$$' . -update

.PHONY: dashboard
dashboard: ## Build the dashboard's page (needs Node 20.19 or later); the result is committed
	npm --prefix dashboard/ui ci --no-audit --no-fund
	npm --prefix dashboard/ui run build

.PHONY: dashboard-check
dashboard-check: dashboard ## Fail if dashboard/dist differs from what its sources come to
	@[ -z "$$(git status --porcelain dashboard/dist)" ] || { git status --short dashboard/dist; \
	  echo 'dashboard/dist is out of date: commit what make dashboard has built'; exit 1; }

# As a part of `make test`: Debian's Node is too old, and its absence is no fault. That the
# page was built from its sources at all, a test of the package knows without Node.
.PHONY: dashboard-built
dashboard-built:
	@if node -e 'const [a, b] = process.versions.node.split("."); process.exit(+(a < 20 || (a == 20 && b < 19)))' 2>/dev/null; then \
	  $(MAKE) --no-print-directory dashboard-check; \
	else echo 'dashboard: no Node 20.19 or later, so the page is not built anew'; fi

.PHONY: screenshots
screenshots: ## Take the pictures of the docs with Chromium (about two minutes)
	SCREENSHOTS='$(CURDIR)/docs/images' go -C dashboard/browsertest test -count=1 -run '^TestScreenshots$$' .

.PHONY: pictures
pictures: ## Draw the pictures of the docs that simulations make (some minutes)
	@mkdir -p .tmp
	go run ./examples/fleet -lines .tmp/fleet.json
	go run ./examples/incidents/lines > .tmp/incidents.json
	go run ./tools/pictures -o docs/images .tmp/fleet.json .tmp/incidents.json

.PHONY: fmt
fmt: ## Format all code (gofumpt and goimports, as .golangci.yml sets them)
	@$(call install,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION))
	$(GOLANGCI) fmt

.PHONY: fmt-diff
fmt-diff:
	@$(call install,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION))
	$(GOLANGCI) fmt --diff

.PHONY: fix-diff
fix-diff:
	go fix -diff $(ALL)

.PHONY: tidy-diff
tidy-diff:
	@for dir in $(MODULE_DIRS); do echo "go mod tidy -diff ($${dir#$(CURDIR)})"; go -C "$$dir" mod tidy -diff; done

##### Slower

.PHONY: bench
bench: ## Run the benchmarks of the root module (BENCH=regexp COUNT=n)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) ./...

.PHONY: bench-peers
bench-peers: ## Measure other libraries next to ours
	go -C bench run ./cmd/peers

.PHONY: bench-redis
bench-redis: deps ## Measure limits in Redis next to go-redis/redis_rate, on a redis-server of its own
	go -C bench run ./cmd/redis

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s), one after the other
	@dirs=$$($(call dirs_with,^func Fuzz)); \
	[ -n "$$dirs" ] || { echo 'no fuzz targets'; exit 0; }; \
	go test -list '^Fuzz' $$dirs | awk '/^Fuzz/ {t[++n] = $$1} /^ok/ {for (i = 1; i <= n; i++) print $$2, t[i]; n = 0}' | \
	while read -r pkg target; do \
	  echo "$$pkg $$target"; \
	  go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg" </dev/null; \
	done

.PHONY: cover
cover: ## Measure coverage; writes .tmp/cover.html
	@mkdir -p .tmp
	go test -coverprofile .tmp/cover.out $(addsuffix /...,$(RELEASED))
	@go tool cover -html .tmp/cover.out -o .tmp/cover.html
	@go tool cover -func .tmp/cover.out | tail -n 1

.PHONY: mutate
mutate: ## Run mutation tests on one package (PKG=./breaker)
	@$(call install,$(GREMLINS),github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION))
	@# A mutant is compiled anew for each run; the default limit counts only the tests.
	$(GREMLINS) unleash --timeout-coefficient 20 $(PKG)

.PHONY: cross
cross: ## Vet every module for other systems and processors
	@for target in windows/amd64 darwin/arm64 linux/386 linux/arm64; do \
	  echo "go vet ($$target)"; \
	  GOOS=$${target%/*} GOARCH=$${target#*/} go vet $(ALL); \
	done

##### Releases

.PHONY: api
api: ## Write the public API of every package to api/
	@rm -rf '$(API)'
	@go list -f '{{if ne .Name "main"}}{{.ImportPath}} {{.Dir}}{{end}}' $(addsuffix /...,$(RELEASED)) | \
	{ grep -vE '/(internal|examples)(/| )' || true; } | \
	while read -r pkg dir; do \
	  file=$${dir#$(CURDIR)}; file=$${file#/}; \
	  file="$(API)/$${file:-breakwater}.txt"; \
	  mkdir -p "$$(dirname "$$file")"; \
	  go doc -all "$$pkg" > "$$file"; \
	done

.PHONY: api-check
api-check: ## Fail if api/ differs from the code
	@$(MAKE) --no-print-directory api API=.tmp/api
	@diff -ru api .tmp/api || { echo 'api/ is out of date: run make api'; exit 1; }

.PHONY: release-check
release-check: ## Pack every module, then build a user's program and the command from the packages
	go run ./tools/releasecheck -skip '$(shell echo $(UNRELEASED) | tr ' ' ,)'

##### Tools

.PHONY: tools
tools: ## Build the pinned tools into the user's cache directory
	@$(call install,$(GOLANGCI),github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION))
	@$(call install,$(BENCHSTAT),golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION))
	@$(call install,$(GREMLINS),github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION))
	@printf '%s\n' '$(GOLANGCI)' '$(BENCHSTAT)' '$(GREMLINS)'

.PHONY: deps
deps: ## Install the Debian packages that tests need (as root on Debian)
	@if [ -z '$(strip $(DEBIAN_PACKAGES))' ]; then \
	  echo 'deps: tests need no packages of the system'; \
	elif [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
	  missing=$$(for p in $(DEBIAN_PACKAGES); do \
	    dpkg-query -W -f='$${Status}' "$$p" 2>/dev/null | grep -q 'ok installed' || echo "$$p"; \
	  done); \
	  [ -z "$$missing" ] || { apt-get -qq update && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing; }; \
	  echo 'deps: have $(DEBIAN_PACKAGES)'; \
	else \
	  echo 'deps: not root on Debian, so nothing is installed; without $(DEBIAN_PACKAGES) these are left out: $(DEBIAN_TESTS)'; \
	fi
