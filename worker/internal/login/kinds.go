package login

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// kind is a sign-in that an engine keeps in a file. The addresses and client
// names are those in the engines' own programs.
type kind struct {
	name      string
	dir, file string // below HOME
	endpoint  string // the issuer's, for new tokens
	client    string
	scope     string // asked for where the file names none
	object    string // the object in the file that holds the tokens
	fields    fields
	expires   func(inner map[string]json.RawMessage) time.Time // zero where it cannot be told
	locks     bool                                             // a folder beside dir is the lock of whoever renews
	signIn    string
	why       string
}

// fields are the names of the tokens in the file.
type fields struct{ access, refresh, id, account, scopes, expires, renewed string }

var kinds = []kind{
	{
		name: "claude", dir: ".claude", file: ".credentials.json",
		endpoint: "https://platform.claude.com/v1/oauth/token", client: "9d1c250a-e61b-44d9-88ed-5944d1962f5e",
		scope: "user:profile user:inference user:sessions:claude_code user:mcp_servers user:file_upload", object: "claudeAiOauth",
		fields:  fields{access: "accessToken", refresh: "refreshToken", scopes: "scopes", expires: "expiresAt"},
		expires: inMilliseconds, locks: true, signIn: "claude, and there /login",
		why: "Claude Code 2.1: TOKEN_URL, CLIENT_ID, and a lock folder .claude.lock that its versions have in common",
	},
	{
		name: "codex", dir: ".codex", file: "auth.json",
		endpoint: "https://auth.openai.com/oauth/token", client: "app_EMoamEEZ73f0CkXaXp7hrann",
		scope: "openid profile email", object: "tokens",
		fields:  fields{access: "access_token", refresh: "refresh_token", id: "id_token", account: "account_id", renewed: "last_refresh"},
		expires: inToken, signIn: "codex login",
		why: "Codex 0.171: its access token is a JWT that tells when it ends; there is no lock",
	},
}

func kindNamed(name string) (kind, bool) {
	for _, k := range kinds {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

// inMilliseconds reads Claude Code's expiresAt.
func inMilliseconds(inner map[string]json.RawMessage) time.Time {
	var ms int64
	if json.Unmarshal(inner["expiresAt"], &ms) != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// inToken reads the exp of an access token that is a JWT. Nobody relies on it
// but us, so no signature is checked.
func inToken(inner map[string]json.RawMessage) time.Time {
	parts := strings.Split(text(inner["access_token"]), ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}
