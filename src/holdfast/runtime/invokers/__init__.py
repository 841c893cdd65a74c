"""Operations of system steps: HTTP services by their OpenAPI documents, and kinds from other packages."""
