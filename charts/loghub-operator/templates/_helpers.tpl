{{- define "loghub.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 54 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 54 characters, so that the name fits into a label with the longest suffix. */ -}}
{{- define "loghub.fullname" -}}
{{- $name := include "loghub.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "loghub.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "loghub.selector" -}}
app.kubernetes.io/name: loghub-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "loghub.commonLabels" -}}
{{- $own := printf "%s\n%s" (include "loghub.selector" .) (include "loghub.ownLabels" .) -}}
{{- include "loghub.rejectLabels" (dict "own" $own "extra" .Values.commonLabels "value" "commonLabels") -}}
{{ include "loghub.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "loghub.ownLabels" -}}
app.kubernetes.io/part-of: loghub
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "loghub.labels" -}}
{{ include "loghub.selector" . }}
{{ include "loghub.commonLabels" . }}
{{- end -}}

{{- /* The chart's labels with the user's. Takes {extra: dict, value: its name, root: .}. */ -}}
{{- define "loghub.labelsWith" -}}
{{- $own := include "loghub.labels" .root -}}
{{- include "loghub.rejectLabels" (dict "own" $own "extra" .extra "value" .value) -}}
{{ $own }}
{{- with .extra }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "loghub.embeddedServiceSelector" -}}
app.kubernetes.io/name: loghub-service
{{- end -}}

{{- define "loghub.embeddedServiceLabels" -}}
{{ include "loghub.embeddedServiceSelector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{ include "loghub.commonLabels" . }}
{{- end -}}

{{- define "loghub.embeddedServiceNamespace" -}}
{{- .Values.embeddedService.namespace | default (include "loghub.namespace" .) -}}
{{- end -}}

{{- define "loghub.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "loghub.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- /* The full name of an image. Takes {image: ..., root: .}. */ -}}
{{- define "loghub.image" -}}
{{- $repository := .image.repository -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" . $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The field of a Service; empty unless it is set. */ -}}
{{- define "loghub.ipFamilies" -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "loghub.embeddedEndpoint" -}}
{{- if .Values.embeddedEndpoint -}}
{{- .Values.embeddedEndpoint -}}
{{- else if .Values.embeddedService.enabled -}}
{{- $scheme := ternary "https" "http" (not (empty .Values.embeddedService.tls.secretName)) -}}
{{- printf "%s://%s.svc" $scheme (include "loghub.embeddedServiceNamespace" .) -}}
{{- else -}}
http://loghub.svc
{{- end -}}
{{- end -}}

{{- /*
The endpoints of the embedded service for clients of other protocols that are enabled, as YAML: a list of name,
port and address. The address is where clients find the endpoint: the Service of the embedded service is
headless, so without the address they would get that of the pod, which no certificate has and which a restart
changes.
*/ -}}
{{- define "loghub.clientEndpoints" -}}
{{- $service := .Values.embeddedService -}}
{{- $used := list 8080 9404 -}}
{{- range $title := list "Kafka" "Pulsar" -}}
{{- $name := lower $title -}}
{{- $values := get $service $name -}}
{{- if $values.enabled -}}
{{- $port := int $values.port -}}
{{- if not (or $service.tls.secretName $values.plaintext) -}}
{{- fail (printf "embeddedService.%s.enabled needs embeddedService.tls.secretName, since %s clients send their secret; or set embeddedService.%s.plaintext where the network is trusted" $name $title $name) -}}
{{- end -}}
{{- if has $port $used -}}
{{- fail (printf "embeddedService.%s.port: the service uses %d for something else" $name $port) -}}
{{- end -}}
{{- $used = append $used $port -}}
{{- $own := printf "%s.%s.svc:%d" $service.name (include "loghub.embeddedServiceNamespace" $) $port }}
- name: {{ $name }}
  port: {{ $port }}
  address: {{ $values.advertisedAddress | default $own | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The explicit port of the endpoint; empty if it has none. */ -}}
{{- define "loghub.embeddedPort" -}}
{{- regexFind ":[0-9]+$" (urlParse (include "loghub.embeddedEndpoint" .)).host | trimPrefix ":" -}}
{{- end -}}

{{- /* The namespace of the projects' Services; empty unless the endpoint's host is NAMESPACE.svc. */ -}}
{{- define "loghub.projectNamespace" -}}
{{- $host := (urlParse (include "loghub.embeddedEndpoint" .)).hostname -}}
{{- if regexMatch "^[a-z0-9-]+\\.svc$" $host -}}
{{- trimSuffix ".svc" $host -}}
{{- end -}}
{{- end -}}
