package api

import (
	_ "embed"
	"net/http"
)

// document describes the API in the form of OpenAPI 3.1.
//
//go:embed openapi.yaml
var document []byte

// Document returns the description of the API in the form of OpenAPI 3.1, in YAML.
func Document() []byte { return append([]byte{}, document...) }

// getDocument answers with the description of the API.
func (h *Handler) getDocument(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if err := parseQuery(r).err; err != nil {
		return err
	}
	h.write(w, r, http.StatusOK, "application/yaml", document)
	return nil
}

// getVersion answers with the version of the program.
func (h *Handler) getVersion(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if err := parseQuery(r).err; err != nil {
		return err
	}
	version := h.config.Version
	if version == nil {
		version = struct{}{}
	}
	return h.writeJSON(w, r, http.StatusOK, version)
}
