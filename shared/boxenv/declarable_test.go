package boxenv

import "testing"

func TestDeclarable(t *testing.T) {
	for name, want := range map[string]bool{
		"XAI_API_KEY": true, "MISTRAL_API_KEY": true, "CURSOR_API_KEY": true, "ANTHROPIC_API_KEY": true, "GITHUB_TOKEN": true, "CLAUDE_CODE_OAUTH_TOKEN": true,
		"PATH": false, "HOME": false, "LD_PRELOAD": false, "ld_preload": false, "OMB_CLOUD_KEY": false, "COMPOSIO_API_KEY": false, "SSL_CERT_FILE": false,
		"HTTPS_PROXY": false, "OMB_COMMS_TOKEN": false, "BOX_TOKEN": false, "": false, "A-B": false, "FLY_API_TOKEN": false,
	} {
		if why, ok := Declarable(name); ok != want || !ok && why == "" {
			t.Errorf("%q: %v %q", name, ok, why)
		}
	}
}
